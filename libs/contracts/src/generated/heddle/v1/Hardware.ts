// Original file: proto/cluster.proto

import type { Gpu as _heddle_v1_Gpu, Gpu__Output as _heddle_v1_Gpu__Output } from '../../heddle/v1/Gpu.ts';
import type { ResourceLimit as _heddle_v1_ResourceLimit, ResourceLimit__Output as _heddle_v1_ResourceLimit__Output } from '../../heddle/v1/ResourceLimit.ts';
import type { Long } from '@grpc/proto-loader';

export interface Hardware {
  'platform'?: (string);
  'cpuModel'?: (string);
  'cpuCount'?: (number);
  'memoryBytes'?: (number | string | Long);
  'gpus'?: (_heddle_v1_Gpu)[];
  'localSsdBytes'?: (number | string | Long);
  'ioOperationsPerSec'?: (number | string | Long);
  'networkMbps'?: (number);
  'hostId'?: (string);
  'diskId'?: (string);
  'limits'?: (_heddle_v1_ResourceLimit)[];
}

export interface Hardware__Output {
  'platform': (string);
  'cpuModel': (string);
  'cpuCount': (number);
  'memoryBytes': (number);
  'gpus': (_heddle_v1_Gpu__Output)[];
  'localSsdBytes': (number);
  'ioOperationsPerSec': (number);
  'networkMbps': (number);
  'hostId': (string);
  'diskId': (string);
  'limits': (_heddle_v1_ResourceLimit__Output)[];
}
