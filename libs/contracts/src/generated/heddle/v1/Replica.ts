// Original file: proto/cluster.proto

import type { EngineLoad as _heddle_v1_EngineLoad, EngineLoad__Output as _heddle_v1_EngineLoad__Output } from '../../heddle/v1/EngineLoad.ts';
import type { EngineInfo as _heddle_v1_EngineInfo, EngineInfo__Output as _heddle_v1_EngineInfo__Output } from '../../heddle/v1/EngineInfo.ts';
import type { Stage as _heddle_v1_Stage, Stage__Output as _heddle_v1_Stage__Output } from '../../heddle/v1/Stage.ts';
import type { UnreachableNode as _heddle_v1_UnreachableNode, UnreachableNode__Output as _heddle_v1_UnreachableNode__Output } from '../../heddle/v1/UnreachableNode.ts';
import type { Long } from '@grpc/proto-loader';

export interface Replica {
  'deployment'?: (string);
  'phase'?: (string);
  'pulledBytes'?: (number | string | Long);
  'totalBytes'?: (number | string | Long);
  'message'?: (string);
  'load'?: (_heddle_v1_EngineLoad | null);
  'info'?: (_heddle_v1_EngineInfo | null);
  'failureCode'?: (string);
  'others'?: (number);
  'stage'?: (_heddle_v1_Stage | null);
  'unreachable'?: (_heddle_v1_UnreachableNode)[];
  '_others'?: "others";
}

export interface Replica__Output {
  'deployment': (string);
  'phase': (string);
  'pulledBytes': (number);
  'totalBytes': (number);
  'message': (string);
  'load': (_heddle_v1_EngineLoad__Output | null);
  'info': (_heddle_v1_EngineInfo__Output | null);
  'failureCode': (string);
  'others'?: (number);
  'stage': (_heddle_v1_Stage__Output | null);
  'unreachable': (_heddle_v1_UnreachableNode__Output)[];
  '_others'?: "others";
}
