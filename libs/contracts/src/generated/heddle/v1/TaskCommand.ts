// Original file: proto/tasks.proto

import type { SessionHello as _heddle_v1_SessionHello, SessionHello__Output as _heddle_v1_SessionHello__Output } from '../../heddle/v1/SessionHello.ts';
import type { LeaseTask as _heddle_v1_LeaseTask, LeaseTask__Output as _heddle_v1_LeaseTask__Output } from '../../heddle/v1/LeaseTask.ts';
import type { StartTask as _heddle_v1_StartTask, StartTask__Output as _heddle_v1_StartTask__Output } from '../../heddle/v1/StartTask.ts';
import type { StopTask as _heddle_v1_StopTask, StopTask__Output as _heddle_v1_StopTask__Output } from '../../heddle/v1/StopTask.ts';
import type { ForgetTask as _heddle_v1_ForgetTask, ForgetTask__Output as _heddle_v1_ForgetTask__Output } from '../../heddle/v1/ForgetTask.ts';
import type { RenewLeases as _heddle_v1_RenewLeases, RenewLeases__Output as _heddle_v1_RenewLeases__Output } from '../../heddle/v1/RenewLeases.ts';
import type { CheckpointTask as _heddle_v1_CheckpointTask, CheckpointTask__Output as _heddle_v1_CheckpointTask__Output } from '../../heddle/v1/CheckpointTask.ts';
import type { ForgetCheckpoints as _heddle_v1_ForgetCheckpoints, ForgetCheckpoints__Output as _heddle_v1_ForgetCheckpoints__Output } from '../../heddle/v1/ForgetCheckpoints.ts';

export interface TaskCommand {
  'hello'?: (_heddle_v1_SessionHello | null);
  'lease'?: (_heddle_v1_LeaseTask | null);
  'start'?: (_heddle_v1_StartTask | null);
  'stop'?: (_heddle_v1_StopTask | null);
  'forget'?: (_heddle_v1_ForgetTask | null);
  'renew'?: (_heddle_v1_RenewLeases | null);
  'checkpoint'?: (_heddle_v1_CheckpointTask | null);
  'forgetCheckpoints'?: (_heddle_v1_ForgetCheckpoints | null);
  'command'?: "hello"|"lease"|"start"|"stop"|"forget"|"renew"|"checkpoint"|"forgetCheckpoints";
}

export interface TaskCommand__Output {
  'hello'?: (_heddle_v1_SessionHello__Output | null);
  'lease'?: (_heddle_v1_LeaseTask__Output | null);
  'start'?: (_heddle_v1_StartTask__Output | null);
  'stop'?: (_heddle_v1_StopTask__Output | null);
  'forget'?: (_heddle_v1_ForgetTask__Output | null);
  'renew'?: (_heddle_v1_RenewLeases__Output | null);
  'checkpoint'?: (_heddle_v1_CheckpointTask__Output | null);
  'forgetCheckpoints'?: (_heddle_v1_ForgetCheckpoints__Output | null);
  'command'?: "hello"|"lease"|"start"|"stop"|"forget"|"renew"|"checkpoint"|"forgetCheckpoints";
}
