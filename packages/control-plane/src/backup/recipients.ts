import { Encrypter } from 'age-encryption';

/** `recipients`: in the form age1…. Throws if one of them is not valid. */
export function encrypterFor(recipients: readonly string[]): Encrypter {
  const encrypter = new Encrypter();
  for (const recipient of recipients) encrypter.addRecipient(recipient);
  return encrypter;
}
