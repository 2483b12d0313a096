import { join } from 'node:path';
import { run } from './process.ts';

/**
 * Creates a self-signed certificate. `names` as in subjectAltName, such as `DNS:localhost` or
 * `IP:127.0.0.1`.
 */
export async function makeCertificate(
  dir: string,
  commonName: string,
  names: readonly string[],
): Promise<{ certFile: string; keyFile: string }> {
  const certFile = join(dir, 'certificate.pem');
  const keyFile = join(dir, 'key.pem');
  const key = [
    '-newkey',
    'ec',
    '-pkeyopt',
    'ec_paramgen_curve:prime256v1',
    '-nodes',
    '-keyout',
    keyFile,
  ];
  const subject = ['-subj', `/CN=${commonName}`, '-addext', `subjectAltName=${names.join(',')}`];
  await run(['openssl', 'req', '-x509', ...key, '-days', '30', ...subject, '-out', certFile]);
  return { certFile, keyFile };
}
