// Original file: proto/worker.proto


export interface UnloadRequest {
  'deployment'?: (string);
  'graceMs'?: (number);
}

export interface UnloadRequest__Output {
  'deployment': (string);
  'graceMs': (number);
}
