"""Clients that measure a server, each in a process of its own, and what they found in one form.

A file for each client, with a class that is an Asker (contract.py).
"""
