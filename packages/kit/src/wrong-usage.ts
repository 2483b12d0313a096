/**
 * Thrown for wrong arguments of a command. The message says which argument and why. Exit code 2.
 */
export class WrongUsage extends Error {
  override name = 'WrongUsage';
}
