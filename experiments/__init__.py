"""All programs: experiments with their configs, the shared runtime, and export."""
