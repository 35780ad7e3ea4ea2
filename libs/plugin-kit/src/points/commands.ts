/** What a verb of the command line gets. */
export interface CommandCall {
  readonly args: readonly string[];
  /** The cluster's address and key, as the command line found them. */
  readonly endpoint: string;
  readonly apiKey: string | undefined;
}

/** A verb: `heddle plugins run PLUGIN VERB ARGS...`. */
export interface CommandVerb {
  readonly name: string;
  readonly summary: string;
  /** Prints to standard output; resolves with the exit code, 0 by default. */
  run(call: CommandCall): number | undefined | Promise<number | undefined>;
}
