import { z } from "zod";

/** The algorithm of a pipeline's own job, of which no worker knows anything. */
export const PIPELINE = "pipeline";

const storedJob = z.object({
  step: z.string(),
  shard: z.string().optional(),
  block: z.string(),
  key: z.string(),
  job: z.string(),
  reused: z.boolean(),
  needs: z.array(z.string()),
});

/** The config of a pipeline's own job. */
export const storedPlan = z.object({ name: z.string(), jobs: z.array(storedJob) });

export type StoredJob = z.output<typeof storedJob>;
export type StoredPlan = z.output<typeof storedPlan>;
