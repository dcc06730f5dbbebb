"""The methods, each written once as a batch; only this package composes the steps."""
