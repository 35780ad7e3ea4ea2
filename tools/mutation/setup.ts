import fc from "fast-check";

// Of a mutant it counts that a property fails; the smallest case is nobody's concern.
fc.configureGlobal({ endOnFailure: true });
