// Original file: proto/tasks.proto

import type { TaskInventory as _heddle_v1_TaskInventory, TaskInventory__Output as _heddle_v1_TaskInventory__Output } from '../../heddle/v1/TaskInventory.ts';
import type { TaskStatus as _heddle_v1_TaskStatus, TaskStatus__Output as _heddle_v1_TaskStatus__Output } from '../../heddle/v1/TaskStatus.ts';

export interface TaskReport {
  'inventory'?: (_heddle_v1_TaskInventory | null);
  'status'?: (_heddle_v1_TaskStatus | null);
  'report'?: "inventory"|"status";
}

export interface TaskReport__Output {
  'inventory'?: (_heddle_v1_TaskInventory__Output | null);
  'status'?: (_heddle_v1_TaskStatus__Output | null);
  'report'?: "inventory"|"status";
}
