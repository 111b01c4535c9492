Profile: CuvilReleaseProvenance
Parent: Provenance
Id: cuvil-release-provenance
Title: "Signatures of a release"
Description: "Who signed a release: every signature over the release statement, the key it was made with, and the version of the model resource it is about."
* target 2..*
* target only Reference(CuvilModelResource or CuvilEngine)
* recorded 1..1
* agent.who.identifier 1..1
* agent.who.identifier.system 1..1
* agent.who.identifier.system = $key (exactly)
* agent.who.identifier.value 1..1
* entity 1..*
* entity.role = #source (exactly)
* entity.what only Reference(CuvilEvidenceDocument)
* signature 1..*
* signature.who 1..1
* signature.sigFormat 1..1
* signature.data 1..1
* signature.data ^short = "The raw signature in DER; it is over the DSSE pre-authentication encoding of the release statement"

Profile: CuvilEvidenceDocument
Parent: DocumentReference
Id: cuvil-evidence-document
Title: "File of evidence"
Description: "One file of a release, as it was signed: the bytes lie in a Binary, the digests here."
* identifier 2..*
* identifier ^slicing.discriminator.type = #value
* identifier ^slicing.discriminator.path = "system"
* identifier ^slicing.rules = #open
* identifier contains sha3 1..1 and sha256 1..1
* identifier[sha3].system 1..1
* identifier[sha3].system = $sha3-512 (exactly)
* identifier[sha3].value 1..1
* identifier[sha3].value obeys cuvil-sha3-512
* identifier[sha256].system 1..1
* identifier[sha256].system = $sha-256 (exactly)
* identifier[sha256].value 1..1
* identifier[sha256].value obeys cuvil-sha-256
* type 1..1
* type from EvidenceDocumentCodes (required)
* subject 1..1
* subject only Reference(CuvilModelResource)
* content 1..1
* content.attachment.contentType 1..1
* content.attachment.url 1..1
* content.attachment.size 1..1
* content.attachment.title 1..1
