// Original file: proto/cluster.proto

import type { Gpu as _heddle_v1_Gpu, Gpu__Output as _heddle_v1_Gpu__Output } from '../../heddle/v1/Gpu.ts';
import type { Replica as _heddle_v1_Replica, Replica__Output as _heddle_v1_Replica__Output } from '../../heddle/v1/Replica.ts';
import type { TaskStatus as _heddle_v1_TaskStatus, TaskStatus__Output as _heddle_v1_TaskStatus__Output } from '../../heddle/v1/TaskStatus.ts';
import type { Refusals as _heddle_v1_Refusals, Refusals__Output as _heddle_v1_Refusals__Output } from '../../heddle/v1/Refusals.ts';
import type { Long } from '@grpc/proto-loader';

export interface Heartbeat {
  'cpuPercent'?: (number | string);
  'memoryUsedBytes'?: (number | string | Long);
  'diskFreeBytes'?: (number | string | Long);
  'diskTotalBytes'?: (number | string | Long);
  'gpus'?: (_heddle_v1_Gpu)[];
  'replicas'?: (_heddle_v1_Replica)[];
  'tasks'?: (_heddle_v1_TaskStatus)[];
  'refusals'?: (_heddle_v1_Refusals | null);
  'deviceReadings'?: (number | string | Long);
  'refusesLeader'?: (string);
  'residentBytes'?: (number | string | Long);
  'executorFault'?: (string);
}

export interface Heartbeat__Output {
  'cpuPercent': (number);
  'memoryUsedBytes': (number);
  'diskFreeBytes': (number);
  'diskTotalBytes': (number);
  'gpus': (_heddle_v1_Gpu__Output)[];
  'replicas': (_heddle_v1_Replica__Output)[];
  'tasks': (_heddle_v1_TaskStatus__Output)[];
  'refusals': (_heddle_v1_Refusals__Output | null);
  'deviceReadings': (number);
  'refusesLeader': (string);
  'residentBytes': (number);
  'executorFault': (string);
}
