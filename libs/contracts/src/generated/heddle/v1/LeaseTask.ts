// Original file: proto/tasks.proto

import type { TaskId as _heddle_v1_TaskId, TaskId__Output as _heddle_v1_TaskId__Output } from '../../heddle/v1/TaskId.ts';
import type { TaskSpec as _heddle_v1_TaskSpec, TaskSpec__Output as _heddle_v1_TaskSpec__Output } from '../../heddle/v1/TaskSpec.ts';

export interface LeaseTask {
  'task'?: (_heddle_v1_TaskId | null);
  'spec'?: (_heddle_v1_TaskSpec | null);
  'devices'?: (number)[];
  'gpuMilli'?: (number);
  'logGrant'?: (string);
}

export interface LeaseTask__Output {
  'task': (_heddle_v1_TaskId__Output | null);
  'spec': (_heddle_v1_TaskSpec__Output | null);
  'devices': (number)[];
  'gpuMilli': (number);
  'logGrant': (string);
}
