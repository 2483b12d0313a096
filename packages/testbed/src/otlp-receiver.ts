/**
 * A collector of OpenTelemetry, as far as traces go: takes OTLP over HTTP with JSON and keeps the
 * spans.
 */
import { text } from 'node:stream/consumers';
import { type Receiver, startReceiver } from './receiver.ts';

type Value = {
  stringValue?: string;
  intValue?: number | string;
  doubleValue?: number;
  boolValue?: boolean;
};
type Attribute = { key: string; value: Value };
type OtlpSpan = {
  traceId: string;
  spanId: string;
  parentSpanId?: string;
  name: string;
  startTimeUnixNano: string;
  endTimeUnixNano: string;
  attributes?: Attribute[];
  status?: { code?: number; message?: string };
};
type OtlpRequest = {
  resourceSpans: { resource: { attributes: Attribute[] }; scopeSpans: { spans: OtlpSpan[] }[] }[];
};

export type ReceivedSpan = {
  service: string;
  name: string;
  traceId: string;
  spanId: string;
  parentId: string | null;
  startMs: number;
  endMs: number;
  attributes: Record<string, string>;
  failed: boolean;
};
/** `down`: resets requests. */
type Behaviour = 'serve' | 'down';
export type OtlpReceiver = Omit<Receiver<Behaviour>, 'port'> & {
  /** Value of OTEL_EXPORTER_OTLP_ENDPOINT. */
  readonly endpoint: string;
  readonly spans: readonly ReceivedSpan[];
  /** Everything that arrived: paths, headers and bodies. */
  readonly wire: readonly string[];
};

const textOf = ({ stringValue, intValue, doubleValue, boolValue }: Value): string =>
  String(stringValue ?? intValue ?? doubleValue ?? boolValue);
const recordOf = (attributes: readonly Attribute[] = []): Record<string, string> =>
  Object.fromEntries(attributes.map(({ key, value }) => [key, textOf(value)]));
const msOf = (nanoseconds: string): number => Number(BigInt(nanoseconds) / 1_000_000n);

export async function startOtlpReceiver(): Promise<OtlpReceiver> {
  const spans: ReceivedSpan[] = [];
  const wire: string[] = [];
  const { port, ...receiver } = await startReceiver<Behaviour>(
    'serve',
    (behaviour, request, response) => {
      if (behaviour === 'down') return void request.socket.destroy();
      if (request.method !== 'POST' || request.url !== '/v1/traces')
        return void response.writeHead(404).end();
      if (request.headers['content-type'] !== 'application/json')
        return void response.writeHead(415).end();
      text(request).then(
        (body) => {
          wire.push(`${request.url}\n${JSON.stringify(request.headers)}\n${body}`);
          for (const { resource, scopeSpans } of (JSON.parse(body) as OtlpRequest).resourceSpans)
            for (const span of scopeSpans.flatMap((scope) => scope.spans))
              spans.push({
                service: recordOf(resource.attributes)['service.name'] ?? '',
                name: span.name,
                traceId: span.traceId,
                spanId: span.spanId,
                parentId:
                  span.parentSpanId === undefined || span.parentSpanId === ''
                    ? null
                    : span.parentSpanId,
                startMs: msOf(span.startTimeUnixNano),
                endMs: msOf(span.endTimeUnixNano),
                attributes: recordOf(span.attributes),
                failed: span.status?.code === 2,
              });
          response.writeHead(200, { 'content-type': 'application/json' }).end('{}');
        },
        () => response.destroy(),
      );
    },
  );
  return { ...receiver, endpoint: `http://127.0.0.1:${port}`, spans, wire };
}
