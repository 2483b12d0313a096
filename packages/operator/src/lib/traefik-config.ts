/** Edits Traefik's static configuration (deploy/traefik/traefik.yml) for an installation. */
import { domainName } from '@berth/kit/config';
import { type Document, isMap, isScalar, parseDocument, type YAMLMap } from 'yaml';
import { Problem } from './command.ts';

export const LETS_ENCRYPT = 'https://acme-v02.api.letsencrypt.org/directory';
export const ACME_CHALLENGES = ['tls-alpn-01', 'http-01', 'dns-01'] as const;
export type AcmeChallenge = (typeof ACME_CHALLENGES)[number];

/** Values to set. A value that is not given stays as the file has it. */
export type TraefikSettings = {
  acmeEmail?: string;
  /** Directory URL of the ACME certificate authority. */
  acmeCaServer?: string;
  /**
   * `dns-01` only keeps the operator's configuration, because each DNS provider has its own
   * settings (docs/https.md).
   */
  acmeChallenge?: AcmeChallenge;
  /** Folder that contains acme.json. */
  stateDir?: string;
  /** Internal address of the control plane or of the relay, which serves the routes of projects. */
  routesFrom?: string;
  dynamicDir?: string;
  /** Container engine whose container labels Traefik reads. */
  dockerEndpoint?: string;
  /** `address:port` of both entry points; the default is all addresses. */
  listen?: { readonly web: string; readonly websecure: string };
};

const RESOLVER = ['certificatesResolvers', 'letsencrypt', 'acme'];

/**
 * Parses a setting (kit/config.ts): one e-mail address, which the certificate authority requires.
 */
export function acmeEmail(text: string): string {
  const [name = '', domain = '', ...more] = text.trim().split('@');
  try {
    if (name === '' || /\s/.test(name) || more.length > 0 || !domainName(domain).includes('.'))
      throw new Error('no address');
  } catch (error) {
    throw new Error(
      `must be an e-mail address at a public domain, such as ops@example.org, not "${text}"`,
      { cause: error },
    );
  }
  return text.trim();
}

/** Parses a setting: the directory URL of an ACME certificate authority. */
export function acmeCaServer(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url?.protocol !== 'https:' || url.username !== '' || url.hash !== '')
    throw new Error(
      `must be the https address of an ACME directory, such as ${LETS_ENCRYPT}, not "${text}"`,
    );
  return url.href;
}

/**
 * Returns the text with these values. `text` is deploy/traefik/traefik.yml, or the operator's
 * version of it; comments and other settings are kept. @throws Problem if the text is not Traefik's
 * configuration
 */
export function traefikConfig(text: string, settings: TraefikSettings): string {
  const file = parseDocument(text);
  const [error] = file.errors;
  if (error !== undefined)
    throw new Problem(`Traefik's configuration is not valid YAML: ${error.message}`);
  const set = (path: readonly string[], value: unknown): void => {
    if (value !== undefined && !isSame(file, path, value)) file.setIn(path, value);
  };
  const acme = file.getIn(RESOLVER);
  if (!isMap(acme)) throw new Problem(`Traefik's configuration has no ${RESOLVER.join('.')}`);
  set([...RESOLVER, 'email'], settings.acmeEmail);
  set([...RESOLVER, 'caServer'], settings.acmeCaServer);
  set([...RESOLVER, 'storage'], settings.stateDir && `${settings.stateDir}/acme.json`);
  if (settings.acmeChallenge !== undefined) setChallenge(acme, settings.acmeChallenge);
  set(
    ['providers', 'http', 'endpoint'],
    settings.routesFrom && `${settings.routesFrom}/api/traefik/config?wait=20`,
  );
  set(['providers', 'file', 'directory'], settings.dynamicDir);
  if (settings.dockerEndpoint !== undefined) {
    set(['providers', 'docker', 'endpoint'], settings.dockerEndpoint);
    set(['providers', 'docker', 'exposedByDefault'], false);
    // Project containers must not create routers, whatever labels their images have.
    set(['providers', 'docker', 'constraints'], '!LabelRegex(`berth.project`, `.+`)');
  }
  set(['entryPoints', 'web', 'address'], settings.listen?.web);
  set(['entryPoints', 'websecure', 'address'], settings.listen?.websecure);
  return file.toString({ lineWidth: 0 });
}

/** Returns whether the file already has the value: then its quotes and comment must stay. */
const isSame = (file: Document, path: readonly string[], value: unknown): boolean =>
  file.getIn(path) === value;

/** Replaces the key and value in place, so that the comment above them stays. */
function setChallenge(acme: YAMLMap, challenge: AcmeChallenge): void {
  const wanted = {
    'tls-alpn-01': 'tlsChallenge',
    'http-01': 'httpChallenge',
    'dns-01': 'dnsChallenge',
  }[challenge];
  if (acme.has(wanted)) return;
  if (challenge === 'dns-01')
    throw new Problem(
      'dns-01 needs a DNS provider: write dnsChallenge into the file yourself (docs/https.md ' +
        '"Wildcards")',
    );
  const pair = acme.items.find(
    ({ key }) => isScalar(key) && (key.value === 'tlsChallenge' || key.value === 'httpChallenge'),
  );
  if (pair === undefined)
    throw new Problem(
      'the certificate resolver has another challenge than tlsChallenge and httpChallenge',
    );
  if (isScalar(pair.key)) pair.key.value = wanted;
  acme.set(wanted, challenge === 'http-01' ? { entryPoint: 'web' } : {});
}
