"""core/limits"""
