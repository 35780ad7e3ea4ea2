// Original file: proto/worker.proto


export interface UnloadRequest {
  'deployment'?: (string);
}

export interface UnloadRequest__Output {
  'deployment': (string);
}
