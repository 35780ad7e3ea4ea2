import type { SubmitJob } from "@heddle/contracts/api/job-spec";

/** A job as its body was accepted, with all defaults. */
export type AdmittedJob = SubmitJob;

/** Who submits a job. */
export interface Submission {
  readonly caller: { readonly id: string; readonly name: string; readonly project: string };
  /** Nothing is submitted; the caller asks what would happen. */
  readonly isDryRun: boolean;
}

/** Fields of the job to replace, or why it is refused; undefined admits it as it is. */
export type AdmissionAnswer =
  | { readonly change: Readonly<Record<string, unknown>> }
  | { readonly refuse: string; readonly param?: string }
  | undefined;

/** Checks or changes a job before it is accepted. */
export interface AdmissionRule {
  readonly name: string;
  /** Where the rule fails or takes too long; by default the job is refused as unavailable. */
  readonly onFailure?: "refuse" | "admit";
  review(job: AdmittedJob, submission: Submission): AdmissionAnswer | Promise<AdmissionAnswer>;
}

/** A job that waits for a place. */
export interface WaitingJob {
  readonly id: string;
  readonly name: string;
  readonly project: string;
  readonly queue: string;
  readonly tasks: number;
  readonly gpusPerTask: number;
  readonly labels: Readonly<Record<string, string>>;
}

export interface CandidateNode {
  readonly id: string;
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly gpuType: string;
  readonly gpus: number;
  readonly rack: string;
}

/** Excludes nodes for a job, on the leader before its plan is proposed. */
export interface FilterRule {
  readonly name: string;
  /** Whether the job may run on the node. */
  admits(job: WaitingJob, node: CandidateNode): boolean;
}

/** Prefers nodes for a job, before the strategy of its queue does. */
export interface ScoreRule {
  readonly name: string;
  /** A finite number; nodes with the highest come first. */
  score(job: WaitingJob, node: CandidateNode): number;
}
