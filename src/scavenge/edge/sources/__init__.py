"""edge/sources"""
