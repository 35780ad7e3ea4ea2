// Original file: proto/tasks.proto

import type { TaskId as _heddle_v1_TaskId, TaskId__Output as _heddle_v1_TaskId__Output } from '../../heddle/v1/TaskId.ts';

export interface ForgetTask {
  'task'?: (_heddle_v1_TaskId | null);
  'dropArtifacts'?: (boolean);
}

export interface ForgetTask__Output {
  'task': (_heddle_v1_TaskId__Output | null);
  'dropArtifacts': (boolean);
}
