/**
 * The values of the secrets that a container has, to remove them from its log. The label names
 * them; the engine has the values.
 */
import { LABELS } from '@berth/wire/vocabulary';
import { createRedact, type Redact } from '../secrets/redaction.ts';
import type { SecretFiles } from '../secrets/files.ts';
import type { Container, Docker } from '../engine/docker.ts';

export type RedactOf = (container: Pick<Container, 'id' | 'labels'>) => Promise<Redact>;

export const createRedactOf =
  (docker: Pick<Docker, 'envOf'>, files: Pick<SecretFiles, 'values'>): RedactOf =>
  async ({ id, labels }) => {
    if (labels[LABELS.secrets] === undefined) return createRedact([]);
    const names = labels[LABELS.secret_names]?.split(',');
    const env = (await docker.envOf(id)).map((pair) => ({
      name: pair.slice(0, pair.indexOf('=')),
      value: pair.slice(pair.indexOf('=') + 1),
    }));
    // An earlier agent started the container without the label: each variable may be a secret.
    const secret = env
      .filter(({ name }) => names === undefined || names.includes(name))
      .map(({ value }) => value);
    return createRedact([...secret, ...(await files.values(labels[LABELS.deployment] ?? ''))]);
  };
