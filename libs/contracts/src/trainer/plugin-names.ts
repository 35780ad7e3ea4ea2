import { z } from "zod";

const names = z.array(z.string());

/** What the trainer's `describe` program prints as JSON: what plugins add to what a worker can run. */
export const pluginNamesSchema = z.object({
  algorithms: names,
  environments: names,
  /** By algorithm, as JSON: the schemas that masters check configs by. */
  schemas: z.record(z.string(), z.string()),
  /** Algorithms whose schemas are too large for masters: only trainers check their configs. */
  unchecked: names,
});

export type PluginNames = z.output<typeof pluginNamesSchema>;
