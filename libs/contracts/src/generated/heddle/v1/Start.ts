// Original file: proto/worker.proto

import type { GenerateRequest as _heddle_v1_GenerateRequest, GenerateRequest__Output as _heddle_v1_GenerateRequest__Output } from '../../heddle/v1/GenerateRequest.ts';
import type { EmbedRequest as _heddle_v1_EmbedRequest, EmbedRequest__Output as _heddle_v1_EmbedRequest__Output } from '../../heddle/v1/EmbedRequest.ts';
import type { ReadRequest as _heddle_v1_ReadRequest, ReadRequest__Output as _heddle_v1_ReadRequest__Output } from '../../heddle/v1/ReadRequest.ts';

export interface Start {
  'id'?: (number);
  'deployment'?: (string);
  'request'?: (_heddle_v1_GenerateRequest | null);
  'fairKey'?: (string);
  'deadlineMs'?: (number);
  'priority'?: (number);
  'window'?: (number);
  'embed'?: (_heddle_v1_EmbedRequest | null);
  'read'?: (_heddle_v1_ReadRequest | null);
  'cacheSalt'?: (string);
  'traceparent'?: (string);
  'holdMs'?: (number);
  'work'?: "request"|"embed"|"read";
}

export interface Start__Output {
  'id': (number);
  'deployment': (string);
  'request'?: (_heddle_v1_GenerateRequest__Output | null);
  'fairKey': (string);
  'deadlineMs': (number);
  'priority': (number);
  'window': (number);
  'embed'?: (_heddle_v1_EmbedRequest__Output | null);
  'read'?: (_heddle_v1_ReadRequest__Output | null);
  'cacheSalt': (string);
  'traceparent': (string);
  'holdMs': (number);
  'work'?: "request"|"embed"|"read";
}
