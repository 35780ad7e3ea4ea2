// Original file: proto/tasks.proto

import type { TaskId as _heddle_v1_TaskId, TaskId__Output as _heddle_v1_TaskId__Output } from '../../heddle/v1/TaskId.ts';
import type { TaskExit as _heddle_v1_TaskExit, TaskExit__Output as _heddle_v1_TaskExit__Output } from '../../heddle/v1/TaskExit.ts';
import type { TaskProgress as _heddle_v1_TaskProgress, TaskProgress__Output as _heddle_v1_TaskProgress__Output } from '../../heddle/v1/TaskProgress.ts';

export interface TaskStatus {
  'task'?: (_heddle_v1_TaskId | null);
  'phase'?: (string);
  'rendezvous'?: (string);
  'exit'?: (_heddle_v1_TaskExit | null);
  'progress'?: (_heddle_v1_TaskProgress | null);
  'cluster'?: (string);
}

export interface TaskStatus__Output {
  'task': (_heddle_v1_TaskId__Output | null);
  'phase': (string);
  'rendezvous': (string);
  'exit': (_heddle_v1_TaskExit__Output | null);
  'progress': (_heddle_v1_TaskProgress__Output | null);
  'cluster': (string);
}
