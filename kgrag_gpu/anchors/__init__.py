"""From a question's words to the entities it starts from: spelling, linking, disambiguation."""
