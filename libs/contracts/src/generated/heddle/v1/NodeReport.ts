// Original file: proto/cluster.proto

import type { Register as _heddle_v1_Register, Register__Output as _heddle_v1_Register__Output } from '../../heddle/v1/Register.ts';
import type { Heartbeat as _heddle_v1_Heartbeat, Heartbeat__Output as _heddle_v1_Heartbeat__Output } from '../../heddle/v1/Heartbeat.ts';

export interface NodeReport {
  'register'?: (_heddle_v1_Register | null);
  'heartbeat'?: (_heddle_v1_Heartbeat | null);
  'report'?: "register"|"heartbeat";
}

export interface NodeReport__Output {
  'register'?: (_heddle_v1_Register__Output | null);
  'heartbeat'?: (_heddle_v1_Heartbeat__Output | null);
  'report'?: "register"|"heartbeat";
}
