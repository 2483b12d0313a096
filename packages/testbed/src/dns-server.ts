/**
 * A small DNS server (RFC 1035) over UDP for tests: A, AAAA and CNAME records of a table. It can
 * also refuse and hang.
 */
import { createSocket } from 'node:dgram';
import { once } from 'node:events';

export type DnsZone = Record<
  string,
  { a?: string[]; aaaa?: string[]; cname?: string } | 'hang' | 'refuse'
>;
export type DnsServer = {
  /** For DNS_SERVERS. */
  address: string;
  zone: DnsZone;
  /** Number of questions so far. */
  asked(): number;
  stop(): Promise<void>;
};

const A = 1;
const CNAME = 5;
const AAAA = 28;
const SERVFAIL = 2;
const NXDOMAIN = 3;

export async function startDnsServer(zone: DnsZone): Promise<DnsServer> {
  const socket = createSocket('udp4');
  let asked = 0;
  const server: DnsServer = {
    address: '',
    zone,
    asked: () => asked,
    stop: () => new Promise((resolve) => socket.close(() => resolve())),
  };
  socket.on('message', (query, peer) => {
    asked++;
    const answer = answerTo(query, server.zone);
    if (answer !== null) socket.send(answer, peer.port, peer.address);
  });
  socket.bind(0, '127.0.0.1');
  await once(socket, 'listening');
  server.address = `127.0.0.1:${socket.address().port}`;
  return server;
}

function answerTo(query: Buffer, zone: DnsZone): Buffer | null {
  const { name, type, end } = questionOf(query);
  const entry = zone[name];
  if (entry === 'hang') return null;
  const records: Buffer[] = [];
  let code = 0;
  if (entry === 'refuse') code = SERVFAIL;
  else if (entry === undefined) code = NXDOMAIN;
  else {
    if (entry.cname !== undefined) records.push(record(name, CNAME, encoded(entry.cname)));
    const target = entry.cname ?? name;
    const entryOfTarget = zone[target];
    const { a = [], aaaa = [] } = typeof entryOfTarget === 'object' ? entryOfTarget : {};
    if (type === A)
      records.push(...a.map((ip) => record(target, A, Buffer.from(ip.split('.').map(Number)))));
    if (type === AAAA) records.push(...aaaa.map((ip) => record(target, AAAA, bytesOf(ip))));
  }
  const head = Buffer.alloc(12);
  query.copy(head, 0, 0, 2);
  head.writeUInt16BE(0x8180 | code, 2);
  head.writeUInt16BE(1, 4);
  head.writeUInt16BE(records.length, 6);
  return Buffer.concat([head, query.subarray(12, end), ...records]);
}

function questionOf(query: Buffer): { name: string; type: number; end: number } {
  const labels: string[] = [];
  let at = 12;
  for (let length = query[at] ?? 0; length !== 0; length = query[at] ?? 0) {
    labels.push(query.toString('latin1', at + 1, at + 1 + length));
    at += 1 + length;
  }
  return { name: labels.join('.').toLowerCase(), type: query.readUInt16BE(at + 1), end: at + 5 };
}

const encoded = (name: string): Buffer =>
  Buffer.concat([
    ...name.split('.').map((label) => Buffer.from([label.length, ...Buffer.from(label)])),
    Buffer.from([0]),
  ]);

function record(name: string, type: number, data: Buffer): Buffer {
  const head = Buffer.alloc(10);
  head.writeUInt16BE(type, 0);
  head.writeUInt16BE(1, 2);
  head.writeUInt32BE(0, 4);
  head.writeUInt16BE(data.length, 8);
  return Buffer.concat([encoded(name), head, data]);
}

/** Takes addresses with at most one `::`. */
function bytesOf(address: string): Buffer {
  const [left = '', right] = address.split('::');
  const parts = (text: string): number[] =>
    text === '' ? [] : text.split(':').map((part) => Number.parseInt(part, 16));
  const head = parts(left);
  const tail = right === undefined ? [] : parts(right);
  const all = [...head, ...Array.from({ length: 8 - head.length - tail.length }, () => 0), ...tail];
  return Buffer.from(all.flatMap((part) => [part >> 8, part & 0xff]));
}
