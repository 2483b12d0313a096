/**
 * Finds the values of a container's secrets, to remove them from its log. A label names the
 * secrets; the engine has the values.
 */
import { LABELS } from '@berth/wire/vocabulary';
import { createRedact, type Redact } from './redaction.ts';
import { ownerOf, type SecretFiles } from './files.ts';

type LabelledContainer = { id: string; labels: Readonly<Record<string, string>> };
export type RedactOf = (container: LabelledContainer) => Promise<Redact>;
/** The engine: returns the environment of a container as NAME=value. */
type Environments = { envOf(id: string): Promise<readonly string[]> };

export const createRedactOf =
  (docker: Environments, files: Pick<SecretFiles, 'values'>): RedactOf =>
  async ({ id, labels }) => {
    if (labels[LABELS.secrets] === undefined) return createRedact([]);
    const names = labels[LABELS.secret_names]?.split(',');
    const env = (await docker.envOf(id)).map((pair) => ({
      name: pair.slice(0, pair.indexOf('=')),
      value: pair.slice(pair.indexOf('=') + 1),
    }));
    // An older agent started the container without the label, so treat each variable as a secret.
    const secret = env
      .filter(({ name }) => names === undefined || names.includes(name))
      .map(({ value }) => value);
    return createRedact([...secret, ...(await files.values(ownerOf(labels)))]);
  };
