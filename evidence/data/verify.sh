#!/bin/sh
# Checks a release folder with POSIX sh, openssl (3.0 or later), coreutils and sed alone:
#   sh verify.sh SM2-PUBLIC-KEY.pem P384-PUBLIC-KEY.pem
# The two public keys come from whoever you trust, never from this folder; so should this script.
# Checked: both signatures of the release, the SHA-256 of every file, nothing missing, nothing added.
# Not checked here (cuvil-verify.pyz does): certificates, timestamp, approvals, the build proof's chain, the log.
set -eu
umask 077
LC_ALL=C
export LC_ALL

fail() {
  echo "FAILED $1: $2" >&2
  exit 1
}

[ "$#" -eq 2 ] || { echo "usage: sh verify.sh SM2-PUBLIC-KEY.pem P384-PUBLIC-KEY.pem" >&2; exit 2; }
absolute() { case "$1" in /*) echo "$1" ;; *) echo "$PWD/$1" ;; esac; }
SM2_KEY=$(absolute "$1")
P384_KEY=$(absolute "$2")
[ -r "$SM2_KEY" ] && [ -r "$P384_KEY" ] || { echo "a public key cannot be read" >&2; exit 2; }
cd "$(dirname "$0")"
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT

set -- ./*.release.json
[ "$#" -eq 1 ] && [ -f "$1" ] || fail release-readable "there is not exactly one *.release.json"
RELEASE=${1#./}
STEM=${RELEASE%.release.json}
TYPE=application/vnd.in-toto+json
[ "$(sed -n 3p "$RELEASE")" = "  \"payloadType\": \"$TYPE\"," ] || fail payload-type "the payload type is another one"

sed -n '2s/^  "payload": "\(.*\)",$/\1/p' "$RELEASE" > "$WORK/payload.b64"
base64 -d < "$WORK/payload.b64" > "$WORK/payload" || fail release-readable "the payload is not base64"
[ "$(base64 -w 0 < "$WORK/payload")" = "$(cat "$WORK/payload.b64")" ] || fail release-encoding "base64 in another spelling"
{ printf 'DSSEv1 %d %s %d ' "${#TYPE}" "$TYPE" "$(wc -c < "$WORK/payload")"; cat "$WORK/payload"; } > "$WORK/pae"
sed -n 's/^      "sig": "\(.*\)"$/\1/p' "$RELEASE" > "$WORK/signatures"
sed -n 1p "$WORK/signatures" | base64 -d > "$WORK/sm2.sig" || fail signature-sm2 "the signature is not base64"
sed -n 2p "$WORK/signatures" | base64 -d > "$WORK/p384.sig" || fail signature-p384 "the signature is not base64"
[ "$(base64 -w 0 < "$WORK/sm2.sig")" = "$(sed -n 1p "$WORK/signatures")" ] || fail release-encoding "base64 in another spelling"
[ "$(base64 -w 0 < "$WORK/p384.sig")" = "$(sed -n 2p "$WORK/signatures")" ] || fail release-encoding "base64 in another spelling"
# Without distid OpenSSL leaves the signer's identity out of the hash; the standard signature has it.
openssl dgst -sm3 -sigopt distid:1234567812345678 -verify "$SM2_KEY" -signature "$WORK/sm2.sig" "$WORK/pae" \
  > /dev/null 2>&1 || fail signature-sm2 "the SM2 signature does not match the payload"
openssl dgst -sha384 -verify "$P384_KEY" -signature "$WORK/p384.sig" "$WORK/pae" \
  > /dev/null 2>&1 || fail signature-p384 "the P-384 signature does not match the payload"

# The payload is canonical JSON, so the subjects are one list at its end.
sed -n 's/^.*"predicateType":"https:\/\/cuvil\.dev\/release\/v1","subject":\[\(.*\)\]}$/\1/p' "$WORK/payload" > "$WORK/list"
sed 's/},{"digest":/}\
{"digest":/g' "$WORK/list" > "$WORK/subjects"
# A file without a line end at its end has one line more than wc counts.
[ "$(tail -c 1 "$WORK/subjects" | wc -l)" -eq 1 ] || echo >> "$WORK/subjects"
sed -n 's/^{"digest":{"sha256":"\([0-9a-f]*\)","sha3_512":"[0-9a-f]*","sm3":"[0-9a-f]*"},"name":"\([A-Za-z0-9._+@/-]*\)"}$/\1  \2/p' \
  "$WORK/subjects" > "$WORK/sums"
[ -s "$WORK/sums" ] && [ "$(wc -l < "$WORK/sums")" -eq "$(wc -l < "$WORK/subjects")" ] \
  || fail statement "this is not the statement of a release"

walk() {
  for entry in "$1"/* "$1"/.[!.]* "$1"/..?*; do
    if [ -L "$entry" ]; then
      fail files-complete "${entry#./} is a link"
    elif [ -d "$entry" ]; then
      walk "$entry"
    elif [ -f "$entry" ]; then
      echo "${entry#./}"
    elif [ -e "$entry" ]; then
      fail files-complete "${entry#./} is a special file"
    fi
  done
}
walk . > "$WORK/found"
sort < "$WORK/found" | sed "/^$STEM\.deployment\.json\$/d" > "$WORK/present"
{ cut -c67- "$WORK/sums"; echo "$RELEASE"; } | sort > "$WORK/expected"
[ "$(cat "$WORK/present")" = "$(cat "$WORK/expected")" ] || {
  comm -13 "$WORK/present" "$WORK/expected" | sed 's/^/missing: /' >&2
  comm -23 "$WORK/present" "$WORK/expected" | sed 's/^/not part of the release: /' >&2
  fail files-complete "the folder does not hold exactly the files of the release"
}
sha256sum -c "$WORK/sums" > "$WORK/checked" 2> /dev/null || {
  sed -n '/: OK$/!p' "$WORK/checked" >&2
  fail files-complete "a file was changed"
}
echo "verified: both signatures and $(wc -l < "$WORK/sums") files of $RELEASE"
