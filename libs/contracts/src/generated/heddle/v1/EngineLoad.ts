// Original file: proto/cluster.proto

import type { StageLoad as _heddle_v1_StageLoad, StageLoad__Output as _heddle_v1_StageLoad__Output } from '../../heddle/v1/StageLoad.ts';
import type { Long } from '@grpc/proto-loader';

export interface EngineLoad {
  'running'?: (number);
  'waiting'?: (number);
  'maxSequences'?: (number);
  'maxQueued'?: (number);
  'kvUsedTokens'?: (number | string | Long);
  'kvTokens'?: (number | string | Long);
  'promptTokens'?: (number | string | Long);
  'cachedTokens'?: (number | string | Long);
  'generatedTokens'?: (number | string | Long);
  'residentBytes'?: (number | string | Long);
  'restarts'?: (number);
  'draftTokens'?: (number | string | Long);
  'acceptedTokens'?: (number | string | Long);
  'stage'?: (_heddle_v1_StageLoad | null);
}

export interface EngineLoad__Output {
  'running': (number);
  'waiting': (number);
  'maxSequences': (number);
  'maxQueued': (number);
  'kvUsedTokens': (number);
  'kvTokens': (number);
  'promptTokens': (number);
  'cachedTokens': (number);
  'generatedTokens': (number);
  'residentBytes': (number);
  'restarts': (number);
  'draftTokens': (number);
  'acceptedTokens': (number);
  'stage': (_heddle_v1_StageLoad__Output | null);
}
