// Original file: proto/tasks.proto

import type { TaskId as _heddle_v1_TaskId, TaskId__Output as _heddle_v1_TaskId__Output } from '../../heddle/v1/TaskId.ts';

export interface LogFile {
  'task'?: (_heddle_v1_TaskId | null);
  'stream'?: (string);
}

export interface LogFile__Output {
  'task': (_heddle_v1_TaskId__Output | null);
  'stream': (string);
}
