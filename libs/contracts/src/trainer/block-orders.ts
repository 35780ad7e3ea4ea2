import type { PluginEntry } from "./plugin-entry.ts";

/** The input of the process of a plugin's block, as JSON on standard input. */
export interface BlockOrders {
  readonly entry: PluginEntry;
  /** `PLUGIN/BLOCK@VERSION`. */
  readonly block: string;
  readonly config: unknown;
  readonly attempt: number;
  /** The checkpoint that this attempt resumes from; empty for a fresh start. */
  readonly resumeFrom: string;
  /** Undefined for a step without inputs. */
  readonly inputDirectory: string | undefined;
  readonly checkpointDirectory: string;
  readonly artifactDirectory: string;
  readonly progressFile: string;
}
