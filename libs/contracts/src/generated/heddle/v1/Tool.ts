// Original file: proto/worker.proto


export interface Tool {
  'name'?: (string);
  'description'?: (string);
  'parameters'?: (string);
}

export interface Tool__Output {
  'name': (string);
  'description': (string);
  'parameters': (string);
}
