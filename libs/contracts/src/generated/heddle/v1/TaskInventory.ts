// Original file: proto/tasks.proto

import type { TaskStatus as _heddle_v1_TaskStatus, TaskStatus__Output as _heddle_v1_TaskStatus__Output } from '../../heddle/v1/TaskStatus.ts';

export interface TaskInventory {
  'tasks'?: (_heddle_v1_TaskStatus)[];
}

export interface TaskInventory__Output {
  'tasks': (_heddle_v1_TaskStatus__Output)[];
}
