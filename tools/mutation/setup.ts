import fc from "fast-check";

// A mutant counts as killed when a property fails, so shrinking the case would waste time.
fc.configureGlobal({ endOnFailure: true });
