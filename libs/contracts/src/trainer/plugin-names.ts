import { z } from "zod";

const names = z.array(z.string());

/** The JSON output of the trainer's `describe` program: what plugins add to a worker's offer. */
export const pluginNamesSchema = z.object({
  algorithms: names,
  environments: names,
  /** Keyed by algorithm, as JSON: the schemas with which masters check configs. */
  schemas: z.record(z.string(), z.string()),
  /** Algorithms whose schemas are too large for masters: only trainers check their configs. */
  unchecked: names,
});

export type PluginNames = z.output<typeof pluginNamesSchema>;
