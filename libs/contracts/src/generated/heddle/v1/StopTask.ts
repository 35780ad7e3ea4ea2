// Original file: proto/tasks.proto

import type { TaskId as _heddle_v1_TaskId, TaskId__Output as _heddle_v1_TaskId__Output } from '../../heddle/v1/TaskId.ts';

export interface StopTask {
  'task'?: (_heddle_v1_TaskId | null);
  'checkpoint'?: (boolean);
  'graceMs'?: (number);
  'why'?: (string);
}

export interface StopTask__Output {
  'task': (_heddle_v1_TaskId__Output | null);
  'checkpoint': (boolean);
  'graceMs': (number);
  'why': (string);
}
