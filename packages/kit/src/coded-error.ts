/** An error with a code. Callers compare the code; the message is for people. */
export class CodedError<Code extends string> extends Error {
  override name = 'CodedError';
  readonly code: Code;
  constructor(code: Code, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}
