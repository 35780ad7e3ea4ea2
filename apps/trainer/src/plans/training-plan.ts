import type { Parameters } from "@heddle/training/parameter-client";
import type { AlgorithmPlan } from "@heddle/training/training-loop";
import type { Lineage } from "../data/lineage.ts";

/** An algorithm's plan, with the trainer's work at its end. */
export interface TrainingPlan extends AlgorithmPlan {
  /** The data that it reads, for the lineage; absent where it makes its own. */
  readonly data?: Lineage["data"] | undefined;
  /** The tokenizer of its text, for the lineage. */
  readonly tokenizer?: Lineage["tokenizer"];
  /** The artifacts of a successful job. */
  writeArtifacts(directory: string, parameters: Parameters, lineage: Lineage): Promise<void>;
}
