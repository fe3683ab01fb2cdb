"""The owner's page: what was spent, by whom and when, and a form for one question.

Plain HTML that says everything without a script; one script that asks for the moving part again. Both and the
style are files of this package: the page loads nothing from elsewhere, and its policy forbids it.
"""
