import type { Parameters } from "@heddle/training/parameter-client";
import type { AlgorithmPlan } from "@heddle/training/training-loop";
import type { Lineage } from "../data/lineage.ts";

/** An algorithm's plan with what the trainer does at its end. */
export interface TrainingPlan extends AlgorithmPlan {
  /** The data that it reads, for the lineage; absent where it makes its own. */
  readonly data?: Lineage["data"] | undefined;
  /** What makes tokens of its text, for the lineage. */
  readonly tokenizer?: Lineage["tokenizer"];
  /** What is left of a job that succeeded. */
  writeArtifacts(directory: string, parameters: Parameters, lineage: Lineage): Promise<void>;
}
