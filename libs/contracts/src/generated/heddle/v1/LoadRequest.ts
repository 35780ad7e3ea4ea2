// Original file: proto/worker.proto

import type { Deployment as _heddle_v1_Deployment, Deployment__Output as _heddle_v1_Deployment__Output } from '../../heddle/v1/Deployment.ts';

export interface LoadRequest {
  'deployment'?: (_heddle_v1_Deployment | null);
  'holders'?: (string)[];
}

export interface LoadRequest__Output {
  'deployment': (_heddle_v1_Deployment__Output | null);
  'holders': (string)[];
}
