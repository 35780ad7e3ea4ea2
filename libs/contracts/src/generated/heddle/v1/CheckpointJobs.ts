// Original file: proto/parameters.proto

import type { CheckpointJob as _heddle_v1_CheckpointJob, CheckpointJob__Output as _heddle_v1_CheckpointJob__Output } from '../../heddle/v1/CheckpointJob.ts';

export interface CheckpointJobs {
  'jobs'?: (_heddle_v1_CheckpointJob)[];
}

export interface CheckpointJobs__Output {
  'jobs': (_heddle_v1_CheckpointJob__Output)[];
}
