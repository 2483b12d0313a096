/** The engine of a machine does not answer. */
export class EngineError extends Error {
  override name = 'EngineError';
}
