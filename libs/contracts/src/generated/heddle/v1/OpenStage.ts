// Original file: proto/worker.proto


export interface OpenStage {
  'deployment'?: (string);
  'build'?: (string);
}

export interface OpenStage__Output {
  'deployment': (string);
  'build': (string);
}
