/** Gauges of the reverse proxy's configuration and certificates. */
import type { CertificateWatch, ConfigSource } from '../../domain/routes/configuration.ts';
import type { Holds } from '../long-poll.ts';
import { type GaugeRow, ONE_OR_ZERO } from './gauge-row.ts';

export type Deps = {
  source: Pick<ConfigSource, 'current' | 'fetchAgeMs' | 'problems'>;
  /** Absent without an https address in PROXY_PROBE_URLS. */
  certificates?: Pick<CertificateWatch, 'firstExpiry' | 'problems'>;
  holds: Pick<Holds, 'counts'>;
};

export const routingGauges = ({ source, certificates, holds }: Deps): GaugeRow[] => [
  {
    name: 'berth_routes_ok',
    help:
      '1 while the configuration of the reverse proxy is known, else 0: then a proxy gets 503 ' +
      'and keeps its last configuration',
    labels: [],
    read: async () => [
      { labels: {}, value: await (async () => source.current())().then(...ONE_OR_ZERO) },
    ],
  },
  {
    name: 'berth_proxy_fetch_age_seconds',
    help:
      'Seconds since a reverse proxy or relay last fetched the configuration, or since the ' +
      'start; 0 while a request is held',
    labels: [],
    read: () => [{ labels: {}, value: holds.counts().config > 0 ? 0 : source.fetchAgeMs() / 1000 }],
  },
  {
    name: 'berth_certificate_problems',
    help:
      'Published hosts without a good certificate at the proxy: missing, invalid, or not ' +
      'renewed in time; 0 if none is checked',
    labels: [],
    read: () => [{ labels: {}, value: certificates?.problems().length ?? 0 }],
  },
  {
    name: 'berth_certificate_first_expiry_timestamp_seconds',
    help:
      'Earliest end of a certificate that the proxy serves for a published host; 0 if none is ' +
      'known',
    labels: [],
    read: () => [{ labels: {}, value: (certificates?.firstExpiry() ?? 0) / 1000 }],
  },
  {
    name: 'berth_projects_left_out_of_routing',
    help: 'Projects whose route cannot be published',
    labels: [],
    read: () => [{ labels: {}, value: source.problems().length }],
  },
];
