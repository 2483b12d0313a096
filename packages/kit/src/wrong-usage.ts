/** The arguments of a command are wrong; the message says which and why. Exit code 2. */
export class WrongUsage extends Error {
  override name = 'WrongUsage';
}
