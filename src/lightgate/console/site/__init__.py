"""The pages of the console and what all of them share: head, navigation, files, endpoints."""
