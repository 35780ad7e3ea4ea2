// Original file: proto/tasks.proto

import type { TaskInventory as _heddle_v1_TaskInventory, TaskInventory__Output as _heddle_v1_TaskInventory__Output } from '../../heddle/v1/TaskInventory.ts';
import type { TaskStatus as _heddle_v1_TaskStatus, TaskStatus__Output as _heddle_v1_TaskStatus__Output } from '../../heddle/v1/TaskStatus.ts';
import type { LeaseRequest as _heddle_v1_LeaseRequest, LeaseRequest__Output as _heddle_v1_LeaseRequest__Output } from '../../heddle/v1/LeaseRequest.ts';
import type { CheckpointFolders as _heddle_v1_CheckpointFolders, CheckpointFolders__Output as _heddle_v1_CheckpointFolders__Output } from '../../heddle/v1/CheckpointFolders.ts';

export interface TaskReport {
  'inventory'?: (_heddle_v1_TaskInventory | null);
  'status'?: (_heddle_v1_TaskStatus | null);
  'leaseRequest'?: (_heddle_v1_LeaseRequest | null);
  'checkpointFolders'?: (_heddle_v1_CheckpointFolders | null);
  'report'?: "inventory"|"status"|"leaseRequest"|"checkpointFolders";
}

export interface TaskReport__Output {
  'inventory'?: (_heddle_v1_TaskInventory__Output | null);
  'status'?: (_heddle_v1_TaskStatus__Output | null);
  'leaseRequest'?: (_heddle_v1_LeaseRequest__Output | null);
  'checkpointFolders'?: (_heddle_v1_CheckpointFolders__Output | null);
  'report'?: "inventory"|"status"|"leaseRequest"|"checkpointFolders";
}
